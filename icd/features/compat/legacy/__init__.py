"""The temporary files that hooks kept before intercore.  Only a client looks at them.

The daemon never runs this: files are the caller's, and so are its rights to them.
"""
