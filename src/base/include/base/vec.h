// A growing array of any type: `VEC(struct job *) jobs = {0}; vec_push(&jobs, j);`, then
// jobs.at[i] for i < jobs.len. vec_done frees.
#pragma once
#include <assert.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

#define VEC(type)          \
    struct {               \
        type *at;          \
        uint32_t len, cap; \
    }

#define vec_reserve(v, n)                                                              \
    do {                                                                               \
        uint32_t want_ = (uint32_t)(n);                                                \
        if ((v)->cap < want_) {                                                        \
            uint32_t cap_ = (v)->cap ? (v)->cap : 8;                                   \
            while (cap_ < want_) {                                                     \
                assert(cap_ < UINT32_MAX / 2);                                         \
                cap_ *= 2;                                                             \
            }                                                                          \
            (v)->at = xrealloc((v)->at, (size_t)cap_ * sizeof *(v)->at);               \
            (v)->cap = cap_;                                                           \
        }                                                                              \
    } while (0)

#define vec_push(v, ...)                          \
    do {                                          \
        vec_reserve(v, (v)->len + 1);             \
        (v)->at[(v)->len++] = (__VA_ARGS__);      \
    } while (0)

#define vec_pop(v) (assert((v)->len), (v)->at[--(v)->len])
// Removes element i; order is kept.
#define vec_remove(v, i)                                                                       \
    do {                                                                                       \
        uint32_t i_ = (uint32_t)(i);                                                           \
        assert(i_ < (v)->len);                                                                 \
        memmove((v)->at + i_, (v)->at + i_ + 1, ((v)->len - i_ - 1) * sizeof *(v)->at);        \
        (v)->len--;                                                                            \
    } while (0)
// Removes element i by moving the last one into its place.
#define vec_remove_swap(v, i)                    \
    do {                                         \
        uint32_t i_ = (uint32_t)(i);             \
        assert(i_ < (v)->len);                   \
        (v)->at[i_] = (v)->at[--(v)->len];       \
    } while (0)
#define vec_clear(v) ((v)->len = 0)
#define vec_done(v)              \
    do {                         \
        free((v)->at);           \
        (v)->at = NULL;          \
        (v)->len = (v)->cap = 0; \
    } while (0)
