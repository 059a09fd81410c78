"""A dataset directory as the runtime sees it."""
