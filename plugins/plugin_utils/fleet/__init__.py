# SPDX-License-Identifier: Apache-2.0
"""The fleet as it is: what was read of each node, one document of all, and what people see of it.

`node` makes a node's entry (`resources` the part for each resource), `document` the whole, which is the JSON;
`table` and `page` show nothing but the document. docs/status.md describes it: whoever adds a key adds it there.

To show something more of a node: read it in the action node_status, put it into `node.entry`, then name it once in
`table.COLUMNS`, which is what the table of text and the page's part for each node are made from.
"""
