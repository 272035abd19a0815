"""ddp_worker.py - one of the processes of test_ddp.py: ddp_worker.py RANK FILE ORDER, which prints losses.

ORDER: plain, or whether the module is laid out before or after DistributedDataParallel has it."""

import sys

from cases import torch
import ashlar.torch
from torch.nn.parallel import DistributedDataParallel
from training import Recurrent

rank, file, order = int(sys.argv[1]), sys.argv[2], sys.argv[3]
torch.set_num_threads(1)
torch.manual_seed(1 + rank)  # DistributedDataParallel makes rank 0's weights everybody's
torch.distributed.init_process_group("gloo", init_method="file://" + file, rank=rank, world_size=2)
module = Recurrent(torch.nn.LSTM, num_layers=2)
arena = ashlar.torch.contiguous(module) if order == "before" else None
parallel = DistributedDataParallel(module, gradient_as_bucket_view=order == "views")
arena = ashlar.torch.contiguous(module) if order in ("after", "views") else arena
optimizer = (ashlar.torch.AdamW(arena, lr=1e-2) if arena else
             torch.optim.AdamW(module.parameters(), lr=1e-2))
for step in range(10):
    loss = parallel(2 * step + rank).square().mean()
    loss.backward()
    if arena and order != "views":
        arena.check()
    elif arena:
        try:
            arena.check()
        except ashlar.torch.Moved as error:
            print(error)
        break
    optimizer.step()
    optimizer.zero_grad(set_to_none=False)
    print("%.9g" % loss.item())
torch.distributed.destroy_process_group()
