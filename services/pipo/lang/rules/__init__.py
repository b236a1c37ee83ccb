"""What a well-formed file may still get wrong: one module per group of rules.

Each rule is a function of a draft that reports what it finds under a code of
`codes.py`; the rules of `chains` look at all files of a run. A rule judges sound
blocks only, and says nothing that follows from another finding.
"""
