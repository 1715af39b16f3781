// The program that serves a Python class or an ONNX file (serve_runner.py), as a text.
#pragma once
extern const char verb_serve_runner[];
