// Texts generated from the table of verbs: help, manual pages, docs/commands.md, completion scripts.
#pragma once
#include "cli/command/command.h"

void help_overview(struct buf *out, bool colour);
void help_verb(const struct verb *v, struct buf *out);
void man_overview(struct buf *out);
void man_verb(const struct verb *v, struct buf *out);
void man_config(struct buf *out);
void docs_markdown(struct buf *out);
void completion_bash(struct buf *out);
void completion_zsh(struct buf *out);
void completion_fish(struct buf *out);
