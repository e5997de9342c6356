"""The register of models: one file a model, found by its name. See `fle.models.specs`."""
