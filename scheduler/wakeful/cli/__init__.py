"""The command line: one small module per noun, imported when its command is."""
