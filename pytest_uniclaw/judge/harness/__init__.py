"""The grading harness: copied as a folder into the grading container, where it runs a task's checks.

Standard library and pytest only; nothing of the host package is importable there, so modules import each other
relatively.
"""
