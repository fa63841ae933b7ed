"""The experiments that tasks share: classifiers, a GAN with its distance, and PPO."""
