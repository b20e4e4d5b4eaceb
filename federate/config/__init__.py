"""The configuration file: read, checked, and turned into settings.

`values` says what a single text may be (the command line asks it too), `tree` reads YAML and knows
the line of every key, `schema` is the shape, `problems` puts what is wrong into words, `load` makes
settings of it, `reference` writes docs/reference/config.md out of the schema.
"""
