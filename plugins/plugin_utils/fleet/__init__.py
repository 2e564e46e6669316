# SPDX-License-Identifier: Apache-2.0
"""The state of the fleet: reads each node's facts into one document, and shows it as a table and a page.

`node` makes a node's entry (`resources` makes its rows), `document` the complete document, which is the JSON. `table`
and `page` show only the document. docs/status.md describes it: document every new key there.

To show another fact of a node, read it in the action node_status, put it into `node.entry`, and add it to
`table.COLUMNS`. The table and each node's part of the page are made from these columns.
"""
