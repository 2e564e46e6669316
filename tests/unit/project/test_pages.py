"""What holds for every page."""

from __future__ import annotations

import re

import yaml
from documented_blocks import PAGES, ROOT, blocks, text_of


def test_every_page_is_listed_once():
    listed = re.findall(r"\]\(([^)#]+\.md)\)", text_of("docs/README.md").partition("\n## ")[2])
    paths = [str((ROOT / "docs" / each).resolve().relative_to(ROOT)) for each in listed]
    assert sorted(paths) == sorted({*PAGES} - {"docs/README.md"})


def test_links_to_pages_and_titles_agree():
    """The list of pages has the words of the titles, which the site's navigation shows."""

    def plain(words):
        return " ".join(words.replace("`", "").lower().split())

    for words, path in re.findall(r"\[([^]]+)\]\(([^)#:]+\.md)\)", text_of("docs/README.md")):
        title = text_of(str((ROOT / "docs" / path).resolve().relative_to(ROOT))).partition("\n")[0].removeprefix("# ")
        assert plain(words) in plain(title) or plain(title) in plain(words), path


def test_code_fits_the_window():
    """docs/site.css lets a line of 120 characters fit 1,280 pixels."""
    lines = [(page, line) for page in PAGES for block in blocks(text_of(page)) for line in block.text.splitlines()]
    assert [(page, line) for page, line in lines if len(line) > 120] == []


def test_pages_have_one_title_and_no_image_from_elsewhere():
    for page in PAGES:
        text = re.sub(r"```.*?```", "", text_of(page), flags=re.S)
        assert len(re.findall(r"^# ", text, re.M)) == 1, page
        assert not re.search(r"!\[[^]]*\]\(https?:", text), page


def test_the_readers_inventory_is_no_part_of_the_collection():
    # docs/collection.md builds an archive of the checkout.
    made = {path for page in PAGES for path in re.findall(r"cp -r inventories/example (\S+)", text_of(page))}
    assert made
    assert made <= set(yaml.safe_load((ROOT / "galaxy.yml").read_text())["build_ignore"])


def test_the_reader_is_told_to_delete_each_group_of_the_example():
    for group in (ROOT / "inventories/example/group_vars").iterdir():
        assert group.name in text_of("README.md") + text_of("docs/bare-metal.md"), group.name


def test_the_site_is_no_part_of_the_collection_or_the_repository():
    assert ".site" in yaml.safe_load((ROOT / "galaxy.yml").read_text())["build_ignore"]
    assert "/.site/\n" in (ROOT / ".gitignore").read_text()
