"""A Fourier layer, as neural operators have: complex weights, and modules that hand complex numbers on."""

from job import MISTAKE, RANK, ddp, nn, own, scaled, torch


class Spectrum(nn.Module):
    def forward(self, x):
        return torch.fft.rfft(x)


class Mixing(nn.Module):
    def __init__(self, channels, modes):
        super().__init__()
        self.modes = modes
        self.weight = nn.Parameter(torch.randn(channels, channels, modes, dtype=torch.cfloat) / channels)

    def forward(self, spectrum):
        return torch.einsum("bim,iom->bom", spectrum[..., : self.modes], self.weight)


class Operator(nn.Module):
    def __init__(self):
        super().__init__()
        self.lift, self.project = nn.Conv1d(1, 8, 1), nn.Conv1d(8, 1, 1)
        self.spectrum, self.mixing = Spectrum(), Mixing(8, 4)

    def forward(self, x):
        h = self.lift(x)
        return self.project(nn.functional.gelu(h + torch.fft.irfft(self.mixing(self.spectrum(h)), n=x.shape[-1])))


model = Operator()
net = ddp(model)
optimizer = torch.optim.Adam(net.parameters(), 1e-3)
for _ in range(2):
    x, y = own(torch.randn(8, 1, 16)), own(torch.randn(8, 1, 16))
    optimizer.zero_grad()
    scaled(nn.functional.mse_loss(net(x), y)).backward()
    if MISTAKE == "phase" and RANK == 1:
        model.mixing.weight.grad.imag.mul_(1.01)
    optimizer.step()
    if MISTAKE == "imaginary":
        with torch.no_grad():
            model.mixing.weight.imag.mul_(1 + 1e-4)
