"""Documented import path of the reward functions for trainers."""

from editloupe.integrations.trainer_rewards import NotJudged as NotJudged
from editloupe.integrations.trainer_rewards import trl as trl
from editloupe.integrations.trainer_rewards import verl as verl
