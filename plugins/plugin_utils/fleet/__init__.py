# SPDX-License-Identifier: Apache-2.0
"""Reads each node's facts into one document, and shows the document as a table and a page.

`node` makes a node's entry, and `resources` makes its rows. `document` makes the complete document,
which is the JSON. `table` and `page` show only the document. Describe every new key in
docs/status.md.

To show another fact of a node, read it in the action node_status, put it into `node.entry`, and add
it to `table.COLUMNS`. The table and each node's part of the page are made from these columns.
"""
