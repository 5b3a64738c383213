"""File-backed coordination of agents' sessions on one host: exclusive, generation-bound, crash-safe."""
