"""Offline batch inference by hand, as a thesis on Ray does it: a model that is put once, a preprocessing task, and model actors that are made
from the reference. Each comment is the line of the Ray program; the model is a small one, so that nothing need be installed."""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../python"))
import acequia  # noqa: E402

DATASET_SIZE = 14
BATCH_SIZE = 2


class Model:
    """Stands for resnet50(weights=...): two classes, by the mean of an image."""

    def __init__(self, threshold):
        self.threshold = threshold

    def __call__(self, image):
        return int(sum(image) / len(image) > self.threshold)


# ds = ds.map_batches(preprocess, batch_format="numpy", num_cpus=1)
@acequia.task(cpus=1)
def preprocess(image_batch):
    return {"image": [[pixel / 255 for pixel in image] for image in image_batch["image"]]}


# ds = ds.map_batches(Actor, batch_size=BATCH_SIZE, num_cpus=1, concurrency=2, fn_constructor_kwargs={"model": model_ref})
@acequia.actor(restarts=1)
class Actor:
    def __init__(self, model):  # a reference among the arguments of a constructor comes as its value: no get
        self.model = model

    def __call__(self, batch):
        return {"class": [self.model(image) for image in batch["image"]]}


def main():
    images = [[(i * 20 + k) % 256 for k in range(64)] for i in range(DATASET_SIZE)]
    # ray.init()
    with acequia.Pool(cpus=2, memory="512M", python=sys.executable) as pool:
        # model_ref = ray.put(model)
        model_ref = pool.put(Model(0.5))
        actors = [pool.actor(Actor, model=model_ref) for _ in range(2)]  # concurrency=2
        results = []
        for i in range(0, DATASET_SIZE, BATCH_SIZE):
            batch = preprocess.submit({"image": images[i:i + BATCH_SIZE]})
            results.append(actors[i // BATCH_SIZE % 2](batch))  # the value goes from worker to worker, not through here
        # for _ in ds.iter_batches(batch_format="numpy", batch_size=None): ...
        classes = [one for result in pool.get(results) for one in result["class"]]
    print(classes)
    assert classes == [int(sum(image) / len(image) > 127.5) for image in images]


if __name__ == "__main__":
    main()
