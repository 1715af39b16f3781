// Fuzz target: configuration files; what is shown parses to the same again.
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "driver.h"
#include "model/config.h"

const struct fuzz_seed fuzz_seeds[] = {
    FUZZ_SEED("[cluster]\nname = lab\nlisten = 0.0.0.0:6820\nadmins = a, b\nnode_timeout = 60s\n"),
    FUZZ_SEED(
        "[node n[1-4]]\ncpus = 8\nmemory = 64G\nfeatures = a b\ngpus = v100:8:32G, a100:1\ngpus_simulated = "
        "yes\n[node *]\n"),
    FUZZ_SEED("[project p]\nquota = 0.5\nweight = 2\nlimit = 4\nmodel_quotas = v100=4\n# c\n[partition "
              "q]\ndefault = "
              "true\n"),
    FUZZ_SEED("[qos u]\npriority = -5\nusage_factor = 1.5\n[reservation r]\nstart = 2026-01-31T12:00\nend = "
              "2026-02-01\n"),
    FUZZ_SEED("\xef\xbb\xbf[cluster]\r\n"),
    {0},
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct config_source source = {"fuzz", 1769860800000, 3600};
    struct error e = {0};
    struct config c, again;
    if (config_parse((const char *)data, size, &source, &c, &e) < 0) {
        assert(e.text[0]);
        return 0;
    }
    cleanup_buf struct buf one = {0}, two = {0};
    config_show(&c, true, &one);
    int r = config_parse(one.data, one.len, &source, &again, &e);
    assert(r == 0);
    config_show(&again, true, &two);
    assert(one.len == two.len && !memcmp(one.data, two.data, one.len));
    config_done(&c);
    config_done(&again);
    return 0;
}
