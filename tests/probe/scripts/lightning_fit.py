"""Lightning's Trainer: four batches a step, an evaluation each 60 batches, checkpoints."""

import sys
import warnings

import lightning
import own_clock
import torch

warnings.simplefilter("ignore")
torch.set_num_threads(1)
clock = own_clock.OwnClock()


class Net(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(32, 16)

    def training_step(self, batch, _):
        own_clock.work(0.5)
        return self.layer(batch[0]).square().mean()

    def validation_step(self, batch, _):
        own_clock.work()

    def on_before_zero_grad(self, _):
        clock.step()

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-6)


data = torch.utils.data.TensorDataset(torch.ones(4000, 32))
lightning.Trainer(
    accelerator="cpu",
    max_epochs=1000,
    accumulate_grad_batches=2,
    val_check_interval=60,
    limit_val_batches=10,
    logger=False,
    default_root_dir=sys.argv[2],
    enable_progress_bar=False,
    enable_model_summary=False,
).fit(
    Net(),
    torch.utils.data.DataLoader(data, batch_size=8),
    torch.utils.data.DataLoader(data, batch_size=20),
)
