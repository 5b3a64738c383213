"""The proof kit: an in-memory model of the weakest POSIX filesystem, and an explorer of its crashes."""
