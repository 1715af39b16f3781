// Texts generated from the table of verbs: help, manual pages, docs/commands.md, completion scripts.
#pragma once
#include "cli/command/command.h"

void verb_help_overview(struct buf *out, bool colour);
void verb_help_verb(const struct verb *v, struct buf *out);
void verb_man_overview(struct buf *out);
void verb_man_verb(const struct verb *v, struct buf *out);
void verb_man_config(struct buf *out);
void verb_docs_markdown(struct buf *out);
void verb_completion_bash(struct buf *out);
void verb_completion_zsh(struct buf *out);
void verb_completion_fish(struct buf *out);
