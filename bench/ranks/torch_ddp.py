"""torch_ddp.py - the model of ashlar-train in PyTorch, on several processes that add up by gloo.

usage: torch_ddp.py FILE JSON RANKS THREADS BATCH LENGTH HIDDEN STEPS

ashlar-bench carries this text, and gives it to python3. THREADS are those of each rank, BATCH is
the batch of all."""
import json, os, sys, tempfile, time
import torch, torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

path, out = sys.argv[1:3]
ranks, threads, batch, length, hidden, steps = map(int, sys.argv[3:])
EMBEDDING, LAYERS, SYMBOLS, RATE, WARM = 64, 2, 256, 0.004, 3


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(SYMBOLS, EMBEDDING)
        self.layers = nn.LSTM(EMBEDDING, hidden, LAYERS)
        self.out = nn.Linear(hidden, SYMBOLS)

    def forward(self, x):
        return self.out(self.layers(self.embedding(x))[0])


def train(rank, meeting):
    torch.set_num_threads(threads)
    torch.manual_seed(1)
    model = Model()
    parameters = sum(p.numel() for p in model.parameters())
    if ranks > 1:
        dist.init_process_group("gloo", f"file://{meeting}", rank=rank, world_size=ranks)
        model = DistributedDataParallel(model)
    text = torch.frombuffer(bytearray(open(path, "rb").read()), dtype=torch.uint8).long()
    loss = nn.CrossEntropyLoss()
    optimizer = torch.optim.AdamW(model.parameters(), RATE)
    draw = torch.Generator().manual_seed(1)
    for step in range(WARM + steps):
        if step == WARM:
            begin = time.perf_counter()
        first = torch.randint(len(text) - length, (batch,), generator=draw)
        first = first[rank * batch // ranks : (rank + 1) * batch // ranks]
        piece = text[first[None, :] + torch.arange(length + 1)[:, None]]
        optimizer.zero_grad()
        value = loss(model(piece[:-1]).flatten(0, 1), piece[1:].flatten())
        value.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        value.item()
    seconds = time.perf_counter() - begin
    if rank == 0:
        with open(out, "w") as file:
            json.dump({"seconds": seconds, "steps": steps, "parameters": parameters,
                       "tokens_per_s": steps * batch * length / seconds}, file)
    if ranks > 1:
        dist.destroy_process_group()


with tempfile.TemporaryDirectory() as folder:
    others = []
    for rank in range(1, ranks):
        others.append(os.fork())
        if others[-1] == 0:
            status = 1
            try:
                train(rank, folder + "/meeting")
                status = 0
            finally:
                os._exit(status)
    train(0, folder + "/meeting")
    if any([os.waitpid(pid, 0)[1] for pid in others]):
        sys.exit("torch_ddp.py: a rank failed")
