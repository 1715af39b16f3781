"""Ray Core's words in ours: tasks, objects, actors, and what they are replaced by, line by line.

Each comment is the line of a Ray program, the line below it does the same here. Run it as any program: python3 core.py"""
import os
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../python"))
import acequia  # noqa: E402


# @ray.remote
@acequia.task
def square(x):
    return x * x


# @ray.remote(num_cpus=1, max_retries=2)
@acequia.task(cpus=1, retries=2)
def add(a, b):
    return a + b


# @ray.remote(num_cpus=1)
@acequia.actor(cpus=0)
class Counter:
    def __init__(self, first):
        self.n = first

    def increment(self):
        self.n += 1
        return self.n


def main():
    # ray.init(num_cpus=2)
    with acequia.Pool(cpus=2, memory="512M", python=sys.executable) as pool:
        # refs = [square.remote(i) for i in range(4)]
        refs = [square.submit(i) for i in range(4)]
        # print(ray.get(refs))
        print(pool.get(refs))

        # total = add.remote(refs[0], refs[3])        # references as arguments
        total = add.submit(refs[0], refs[3])
        # print(ray.get(total))
        print(total.result())

        # table = ray.put(list(range(100_000)))
        table = pool.put(list(range(100_000)))
        # print(ray.get(ray.remote(len).remote(table)))
        print(pool.submit(len, table).result())

        # counter = Counter.remote(10)
        counter = Counter.start(10)
        # print(ray.get([counter.increment.remote() for _ in range(3)]))
        print(pool.get([counter.increment() for _ in range(3)]))

        # ready, waiting = ray.wait([square.remote(5), slow.remote()], num_returns=1)
        slow = pool.submit(time.sleep, 30)
        ready, waiting = pool.wait([square.submit(5), slow], count=1)
        print(len(ready), len(waiting), ready[0].result())
        # ray.cancel(waiting[0], force=True)
        waiting[0].cancel(force=True)

        # ray list tasks; ray summary tasks           # also: acequia tasks JOB, acequia tasks JOB --summary
        print(pool.summary()["failed"], len(pool.actors()))
        # ray.kill(counter)
        pool.kill(counter)
    # ray.shutdown()


if __name__ == "__main__":
    main()
