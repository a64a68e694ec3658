"""ResNet-50 in bf16 by Lightning."""

import warnings

import pytorch_lightning
import torch
import torchvision
from hand import Hand

warnings.simplefilter("ignore")


class Net(pytorch_lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.model = torchvision.models.resnet50()
        self.hand = Hand()

    def training_step(self, batch, _):
        return torch.nn.functional.cross_entropy(self.model(batch[0]), batch[1])

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01)

    def on_train_batch_end(self, *_):
        self.hand.step()


class Batches(torch.utils.data.Dataset):
    images = torch.randn(128, 3, 224, 224).pin_memory()
    labels = torch.randint(1000, (128,)).pin_memory()

    def __len__(self):
        return 400

    def __getitem__(self, _):
        return self.images, self.labels


trainer = pytorch_lightning.Trainer(
    max_epochs=10_000,
    accelerator="gpu",
    devices=1,
    precision="bf16-mixed",
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    enable_model_summary=False,
)
trainer.fit(Net(), torch.utils.data.DataLoader(Batches(), batch_size=None))
