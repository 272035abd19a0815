#!/usr/bin/env python3
"""memory_viz.py - converts a snapshot of ashlar's memory, in JSON, to what PyTorch's viewers read.

    python3 tools/memory_viz.py MEMORY.json SNAPSHOT.pickle

MEMORY.json is written by ashlar_allocator_write_snapshot(), by ashlar-train --snapshot or with
ASHLAR_PRELOAD=trace=FILE.json. SNAPSHOT.pickle has the form of torch.cuda.memory._snapshot(): for
pytorch.org/memory_viz and torch.cuda._memory_viz. It holds plain values; PyTorch is not needed.
tools/viewer.html shows MEMORY.json without any of this.
"""

import json
import pickle
import sys

SETTINGS = {  # those with which PyTorch's allocator is most like ours
    'PYTORCH_CUDA_ALLOC_CONF': '', 'max_split_size': -1, 'garbage_collection_threshold': 0.0,
    'expandable_segments': True, 'pinned_num_register_threads': 1,
    'release_lock_on_cudamalloc': False, 'pinned_use_cuda_host_register': False,
    'graph_capture_record_stream_reuse': False, 'roundup_power2_divisions': {},
}
ACTIONS = {'alloc': ['alloc'], 'map': ['segment_map'], 'unmap': ['segment_unmap'], 'oom': ['oom'],
           'free': ['free_requested', 'free_completed']}  # PyTorch's two stages of a free, at once


def records(table):
    return [dict(zip(table['columns'], row)) for row in table['rows']]


def block_of(block):
    # Free memory is 'inactive', even if its last use may not be over. PyTorch's third state,
    # 'active_pending_free', would be wrong: it keeps a block from every stream, and ours may be
    # taken by its own stream at once.
    return {'address': block['address'], 'size': block['bytes'],
            'requested_size': block['requested'], 'frames': [],
            'state': 'active_allocated' if block['state'] == 'live' else 'inactive'}


def segment_of(segment, blocks, device):
    end = segment['address'] + segment['bytes']
    within = [b for b in blocks if segment['address'] <= b['address'] < end]
    live = sum(b['bytes'] for b in within if b['state'] == 'live')
    return {'device': device, 'address': segment['address'], 'total_size': segment['bytes'],
            'allocated_size': live, 'active_size': live,
            'requested_size': sum(b['requested'] for b in within),
            'stream': 0, 'segment_type': 'large', 'segment_pool_id': (0, 0),  # it serves all streams
            'is_expandable': True, 'frames': [], 'blocks': [block_of(b) for b in within]}


def events_of(event):
    of_memory = event['action'] in ('map', 'unmap')
    is_oom = event['action'] == 'oom'
    for action in ACTIONS[event['action']]:
        yield {'action': action, 'frames': [], 'compile_context': 'N/A',
               'device_free' if is_oom else 'addr': event['bytes' if is_oom else 'address'],
               'size': event['bytes' if of_memory else 'requested'],
               # viewers join mapped memory only with a segment of the same stream, and ours is 0
               'stream': 0 if of_memory else event['stream'],
               'time_us': event['time_ns'] // 1000, 'user_metadata': event['tag']}


def convert(memory):
    if memory.get('schema') != 'ashlar-memory/1':
        raise ValueError('this is not what ashlar_allocator_write_snapshot() writes')
    device, blocks = memory['device_ordinal'], records(memory['blocks'])
    trace = [e for event in records(memory['events']) for e in events_of(event)]
    return {'segments': [segment_of(s, blocks, device) for s in records(memory['segments'])],
            'device_traces': [[] for _ in range(device)] + [trace],
            'allocator_settings': SETTINGS, 'external_annotations': []}


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    try:
        with open(sys.argv[1], encoding='utf-8') as file:
            snapshot = convert(json.load(file))
        with open(sys.argv[2], 'wb') as file:
            pickle.dump(snapshot, file)
    except (OSError, ValueError, KeyError) as wrong:
        sys.exit(f'memory_viz.py: {sys.argv[1]}: {wrong}')


if __name__ == '__main__':
    main()
