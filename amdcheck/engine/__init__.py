"""Runs checks: registry, supervisor and worker, policy, verdict."""
