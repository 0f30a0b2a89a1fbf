"""The public test kit: scripted streams, contract tests, property strategies, conformance cases."""
