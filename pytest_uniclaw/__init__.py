"""pytest-uniclaw: evaluate proactive agents as pytest (arXiv 2607.08768)."""

__version__ = "0.1.0"
