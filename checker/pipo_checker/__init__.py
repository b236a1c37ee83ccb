"""The checker: looks at destinations, read only, and reports what it saw."""
