from setuptools import find_packages, setup

setup(
    name="distrl",
    version="0.1.0",
    description="Distributed reinforcement learning on TensorFlow graphs",
    python_requires=">=3.10",
    packages=find_packages(include=["distrl", "distrl.*"]),
    install_requires=[
        "absl-py>=2.1",
        "ale-py>=0.11",
        "cloudpickle>=3.0",
        "gin-config>=0.5",
        "gymnasium>=1.1",
        "numpy>=1.26",
        "opencv-python-headless>=4.9",
        "optree>=0.13",
        "portpicker>=1.6",
        "psutil>=5.9",
        "rich>=13.0",
        "tensorflow>=2.18",
    ],
    extras_require={
        # Sample Factory, the other peer of benchmark.unrolls, needs gymnasium < 1.0.
        "benchmark-rllib": ["ray[rllib]>=2.40", "torch>=2.0"],
        "box2d": ["gymnasium[box2d]>=1.1"],
        "envpool": ["envpool>=1.2"],
        "pettingzoo": ["pettingzoo>=1.25", "pygame-ce>=2.5"],
        "dev": [
            "gymnasium[box2d]>=1.1",
            "mypy>=1.13",
            "pettingzoo>=1.25",
            "pygame-ce>=2.5",
            "pytest>=8.0",
            "pytest-timeout>=2.3",
            "pytest-xdist>=3.6",
            "ruff>=0.8",
            "scipy>=1.11",
        ],
    },
)
