"""What runs inside grading containers and workspaces: copied there as a folder, checks by ``run_checks.py``, tools by
``tools.py``.

Standard library, pytest and the document libraries of the image; nothing of the host package is importable there, so
modules import each other relatively.
"""
