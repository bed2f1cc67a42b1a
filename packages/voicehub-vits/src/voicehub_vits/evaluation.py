"""placeholder"""

from voicehub.adapters.evaluation import EvaluationTask


class SampleTask(EvaluationTask):
    name = "samples"

    def __init__(self, *a):
        pass

    def run(self, context):
        return {}
