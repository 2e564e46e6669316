"use strict";
(() => {
  const rows = [...document.querySelectorAll(".matrix tbody tr")];
  const parts = [...document.querySelectorAll("details.node")];
  // A node's texts are in its own part; the matrix has its rows in the same order.
  const texts = parts.map((part) => part.textContent.toLowerCase());
  const find = document.getElementById("find");
  const notOk = document.getElementById("not-ok");
  const all = parts.reduce((sum, part) => sum + Number(part.dataset.nodes), 0);
  const shown = document.getElementById("shown");

  function apply() {
    const words = find.value.toLowerCase().split(/\s+/).filter(Boolean);
    let count = 0;
    parts.forEach((part, at) => {
      const fits = words.every((word) => texts[at].includes(word)) && !(notOk.checked && part.dataset.state === "ok");
      part.hidden = rows[at].hidden = !fits;
      count += fits ? Number(part.dataset.nodes) : 0;
    });
    shown.value = `${count} of ${all} nodes`;
  }

  function openTarget() {
    const part = document.getElementById(location.hash.slice(1));
    if (part && part.matches("details.node")) {
      part.hidden = false;
      part.open = true;
      part.scrollIntoView();
    }
  }

  document.getElementById("filter").hidden = false;
  document.getElementById("filter").addEventListener("submit", (event) => event.preventDefault());
  find.addEventListener("input", apply);
  notOk.addEventListener("change", apply);
  addEventListener("hashchange", openTarget);
  apply();
  openTarget();
})();
