"""Settings of the tests alone; those that pytest takes from the root only are in the conftest there."""

import hypothesis

hypothesis.settings.register_profile("repository", deadline=None)  # a busy machine is no fault of an example
hypothesis.settings.load_profile("repository")
