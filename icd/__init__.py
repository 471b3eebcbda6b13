"""intercore: one small, always-warm database per project, served by one local daemon."""

__version__ = "0.5.0"
