# SPDX-License-Identifier: Apache-2.0
"""Combines the nodes' facts in one document, and shows the document as a table and a page.

`node` makes a node's entry, and `resources` makes the entry's rows. `document` makes the JSON document. `table` and
`page` render the document. Describe every new key in docs/status.md.

To show another fact of a node, read it in the action node_status, put it into `node.entry`, and add it to
`table.COLUMNS`. The table and each node's part of the page show these columns.
"""
