"""Another value for every setting of a recipe."""

# For each setting, something that no problem has by default; what is yes or no is turned round.
CHANGES = {
    "steps": 7,
    "batch_size": 30,
    "learning_rate": 0.2,
    "weight_decay": 0.5,
    "draws": 3,
    "schedule": "constant",
    "average": 0.3,
    "frame_tolerance": 0.7,
    "start": "fresh",
    "held_out": 0.4,
    "trace": 0.3,
    "occupancy": None,
    "trend": None,
    "component_prior": 0.9,
    "beta": 0.125,
    "scale_floor": 0.2,
    "objective": "energy",
}


def changed(usual):
    """The same, with yes and no as `usual` does not have them."""
    return {
        name: not getattr(usual, name) if value is None else value
        for name, value in CHANGES.items()
    }
