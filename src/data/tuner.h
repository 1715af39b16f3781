// Finds the size of a stage's batches while it runs, from what batches took: doubles while that pays, else halves.
// Pure.
#pragma once
#include <stdbool.h>
#include <stdint.h>

enum { DATA_TUNER_CLASSES = 17, DATA_TUNER_FIRST = 8 };

struct data_tuner {
    uint32_t size, max, samples_wanted;
    bool fixed, settled, down, climbed;
    struct {
        double row_us;  // mean
        uint32_t count;
    } classes[DATA_TUNER_CLASSES];
};

// fixed: a size that was asked for; 0: it is to be found, at most `max`. replicas: how many workers report.
void data_tuner_init(struct data_tuner *t, uint32_t fixed, uint32_t max, uint32_t replicas);
// A batch of `rows` took so long. Batches of other sizes than the present one say nothing about it.
void data_tuner_report(struct data_tuner *t, uint32_t rows, double us);
// A batch of `rows` needed more memory than there is: never as many again.
void data_tuner_too_large(struct data_tuner *t, uint32_t rows);
