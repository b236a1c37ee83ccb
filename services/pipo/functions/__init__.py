"""The author's own functions: `fn.<name>` steps, written in Python.

`outline` reads a module without running it, `code` is what a version keeps of it; `pool`
(for a pipeline) and `importing` (for a check) run it, both through the one program in
`helper`, in processes of their own. Nothing of the author's runs in a process of ours.
"""
