# SPDX-License-Identifier: Apache-2.0
"""What each role does on a node, as one function each: it reads, decides, and writes.

A file here has these names:

    PARAMS: the parameters, as an AnsibleModule's ``argument_spec``
    CHECKS: optional, further arguments of AnsibleModule, which say what the parameters require of each other
    converge(node, params): makes the node as wanted, and returns the module's answer. node: a `node.Node`

The answer has ``changed``, ``diff``, ``kept`` (what stays, each with a reason), ``problems`` (if the node is refused),
``in_use`` (problems that end by themselves, so that only the role's task fails), and the keys that later tasks of a
play read. In check mode, the function writes nothing and its answer is exact.

The module of that name (`node.door`) and the preflight check (`registry.py`) call the function in the same way.
"""
