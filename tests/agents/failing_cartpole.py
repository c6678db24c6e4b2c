"""An environment that fails, in a module that child processes import without
TensorFlow."""

import gymnasium


class FailingCartPole(gymnasium.Wrapper):
    """Raises in its 70th step since it was made."""

    def __init__(self):
        super().__init__(gymnasium.make("CartPole-v1", disable_env_checker=True))
        self.steps = 0

    def step(self, action):
        self.steps += 1
        if self.steps == 70:
            raise RuntimeError("the cart fell off")
        return self.env.step(action)
