"""Runs as data: what decides a model or an audit, its content key, making it, and back from an artefact to the run."""
