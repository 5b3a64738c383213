"""First-party plugins: on the same entry points as anyone's, without a privilege a third party lacks."""
