#include "rnn/train/task_stack.h"

void ashlar_task_add_stack(ashlar_facts *f, const ashlar_train_config *c) {
    ashlar_facts_add_text(f, ASHLAR_METADATA_CELL, ashlar_rnn_cell_name(c->cell));
    ashlar_facts_add_count(f, ASHLAR_METADATA_PROJECTION, c->projection);
    ashlar_facts_add_real(f, ASHLAR_METADATA_DROPOUT, c->dropout);
    ashlar_facts_add_count(f, ASHLAR_METADATA_LAYERS, c->layers);
    ashlar_facts_add_count(f, ASHLAR_METADATA_HIDDEN, c->hidden);
    ashlar_facts_add_count(f, ASHLAR_METADATA_EMBEDDING, c->embedding);
}
