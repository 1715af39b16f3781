"""Fits a line by gradient descent: what matters is that it runs in the image."""
import os

points = [(x, 3.0 * x + 1.0) for x in range(-10, 11)]
slope = offset = 0.0
for epoch in range(int(os.environ.get("EPOCHS", "3"))):
    for x, y in points * 100:
        error = slope * x + offset - y
        slope -= 0.001 * error * x
        offset -= 0.001 * error
    print(f"epoch {epoch + 1}: y = {slope:.2f} x + {offset:.2f}", flush=True)
