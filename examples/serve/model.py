"""A small model: the sentiment of a sentence, by the words in it. Stands for whatever takes a few milliseconds."""
import math

WEIGHTS = {"good": 1.4, "great": 2.1, "love": 1.8, "fast": 0.9, "bad": -1.5, "slow": -1.1, "awful": -2.3, "not": -0.4}


class Model:
    def predict(self, request):
        score = sum(WEIGHTS.get(word, 0.0) for word in request["text"].lower().split())
        for _ in range(20000):  # what a real model would compute
            score = math.tanh(score) * 1.0001
        return {"positive": 1 / (1 + math.exp(-score))}
