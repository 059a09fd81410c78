"""The weights of a trainer, to begin another one with."""

from pipeline.training.trained_variables import comparable_names
from pipeline.training.trainer import Trainer
from pipeline.warm_start import TrainedWeights


def weights_of(trainer: Trainer) -> TrainedWeights:
    """Takes the weights of a trainer, as `pipeline.warm_start.load_weights` does from its run."""
    weights = trainer.model.weights
    names = comparable_names([variable.path for variable in weights])
    return TrainedWeights(
        path="the old run",
        arrays=dict(zip(names, (variable.numpy() for variable in weights), strict=True)),
        vocabularies=trainer.info.manifest.vocabularies,
    )
