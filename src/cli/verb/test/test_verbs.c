// The table of verbs and the texts generated from it.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "base/text.h"
#include "texts.h"
#include "verbs.h"

static void widest_line(const char *text, size_t most, const char *what) {
    for (const char *p = text; *p; p += *p == '\n') {
        size_t len = strcspn(p, "\n");
        if (len > most)
            print_error("%s: %.*s\n", what, (int)len, p);
        assert_true(len <= most);
        p += len;
    }
}

// Every verb says what it does within 80 columns, has a page and completes.
static void verbs_are_whole(void **state) {
    size_t count;
    const struct verb *const *verbs = verbs_all(&count);
    cleanup_buf struct buf overview = {0}, bash = {0}, zsh = {0}, docs = {0};
    verb_help_overview(&overview, false);
    verb_completion_bash(&bash);
    verb_completion_zsh(&zsh);
    verb_docs_markdown(&docs);
    widest_line(buf_str(&overview), 80, "overview");
    for (size_t i = 0; i < count; i++) {
        const struct verb *v = verbs[i];
        cleanup_buf struct buf help = {0}, man = {0};
        assert_non_null(v->summary);
        assert_non_null(v->run);
        verb_help_verb(v, &help);
        verb_man_verb(v, &man);
        widest_line(buf_str(&help), 80, v->name);
        assert_non_null(strstr(buf_str(&help), "--json"));
        assert_non_null(strstr(buf_str(&man), ".SH NAME"));
        if (!v->group)
            continue;
        assert_non_null(strstr(buf_str(&bash), v->name));
        assert_non_null(strstr(buf_str(&zsh), v->name));
        assert_non_null(strstr(buf_str(&docs), v->name));
    }
    // No letter twice in one verb.
    for (size_t i = 0; i < count; i++) {
        char seen[128] = {0};
        for (int t = 0; verbs[i]->options[t]; t++)
            for (size_t k = 0; k < verbs[i]->options[t]->count; k++) {
                char letter = verbs[i]->options[t]->at[k].letter;
                if (letter && seen[(unsigned char)letter])
                    print_error("%s: -%c twice\n", verbs[i]->name, letter);
                assert_true(!letter || !seen[(unsigned char)letter]);
                seen[(unsigned char)letter] = 1;
            }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(verbs_are_whole)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
