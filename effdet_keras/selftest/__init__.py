"""Can this model learn this dataset, and if not, at which stage is it lost?"""

from effdet_keras.selftest.self_test import self_test
from effdet_keras.selftest.stages import LostBoxes, SelfTestReport, SelfTestStage

__all__ = ["LostBoxes", "SelfTestReport", "SelfTestStage", "self_test"]
