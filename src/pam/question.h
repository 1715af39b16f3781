// What acequia-pam is asked: "SERVICE\0USER\0FROM\0PASSWORD\0".
#pragma once
#include <stddef.h>

enum { QUESTION_WORDS = 4 };

// Points into the input; -1: it is no such question.
int question_split(const char *input, size_t len, const char *words[static QUESTION_WORDS]);
