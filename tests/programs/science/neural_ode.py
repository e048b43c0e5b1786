"""torchdiffeq in one file: odeint with rk4 and dopri5 over tuples, odeint_adjoint as an autograd.Function; the ODE demo on a spiral."""

import torch
import torch.nn as nn
import torch.optim as optim

# Dormand-Prince coefficients, as in torchdiffeq/_impl/dopri5.py
ALPHA = torch.tensor([1 / 5, 3 / 10, 4 / 5, 8 / 9, 1., 1.], dtype=torch.float64)
BETA = [
    torch.tensor([1 / 5], dtype=torch.float64),
    torch.tensor([3 / 40, 9 / 40], dtype=torch.float64),
    torch.tensor([44 / 45, -56 / 15, 32 / 9], dtype=torch.float64),
    torch.tensor([19372 / 6561, -25360 / 2187, 64448 / 6561, -212 / 729], dtype=torch.float64),
    torch.tensor([9017 / 3168, -355 / 33, 46732 / 5247, 49 / 176, -5103 / 18656], dtype=torch.float64),
    torch.tensor([35 / 384, 0, 500 / 1113, 125 / 192, -2187 / 6784, 11 / 84], dtype=torch.float64),
]
C_ERROR = torch.tensor([
    35 / 384 - 1951 / 21600, 0, 500 / 1113 - 22642 / 50085, 125 / 192 - 451 / 720, -2187 / 6784 - -12231 / 42400, 11 / 84 - 649 / 6300, -1. / 60.,
], dtype=torch.float64)


def rms_norm(tensor):
    return tensor.abs().pow(2).mean().sqrt()


def rk4_step(func, t0, dt, y0):
    # 3/8 rule
    k1 = func(t0, y0)
    k2 = func(t0 + dt / 3, y0 + dt * k1 / 3)
    k3 = func(t0 + dt * 2 / 3, y0 + dt * (k2 - k1 / 3))
    k4 = func(t0 + dt, y0 + dt * (k1 - k2 + k3))
    return y0 + (k1 + 3 * (k2 + k3) + k4) * dt * 0.125


def dopri5_step(func, y0, f0, t0, dt):
    t0, dt = t0.to(y0.dtype), dt.to(y0.dtype)
    k = torch.empty(*f0.shape, 7, dtype=y0.dtype, device=y0.device)
    k = [f0]
    for alpha_i, beta_i in zip(ALPHA.to(y0.dtype), BETA):
        ti = t0 + alpha_i * dt
        yi = y0 + torch.stack(k, dim=-1).matmul(beta_i.to(y0.dtype) * dt).view_as(f0)
        f = func(ti, yi)
        k.append(f)
    y1, f1 = yi, f
    y1_error = torch.stack(k, dim=-1).matmul(dt * C_ERROR.to(y0.dtype))
    return y1, f1, y1_error


def odeint(func, y0, t, rtol=1e-5, atol=1e-6, method='dopri5'):
    solution = torch.empty(len(t), *y0.shape, dtype=y0.dtype, device=y0.device)
    solution[0] = y0
    evaluations = 0
    if method == 'rk4':
        for i, (t0, t1) in enumerate(zip(t[:-1], t[1:])):
            y0 = rk4_step(func, t0, t1 - t0, y0)
            solution[i + 1] = y0
        return solution
    t = t.to(torch.float64)
    t_now, f0 = t[0], func(t[0], y0)
    sign = 1.0 if t[-1] > t[0] else -1.0
    dt = sign * torch.tensor(0.05, dtype=torch.float64)
    for i in range(1, len(t)):
        while sign * t_now < sign * t[i]:
            step = dt if sign * (t_now + dt) < sign * t[i] else t[i] - t_now
            y1, f1, error = dopri5_step(func, y0, f0, t_now, step)
            tolerance = atol + rtol * torch.max(y0.abs(), y1.abs())
            ratio = rms_norm(error / tolerance).detach()
            accept = bool(ratio <= 1)
            if accept:
                t_now, y0, f0 = t_now + step, y1, f1
            factor = torch.clamp(0.9 / ratio.clamp(min=1e-10).double() ** 0.2, 0.2, 10.0)
            dt = step * factor
            evaluations += 6
        solution[i] = y0
    odeint.evaluations = evaluations
    return solution


class OdeintAdjointMethod(torch.autograd.Function):
    @staticmethod
    def forward(ctx, func, y0, t, method, *adjoint_params):
        ctx.func = func
        ctx.method = method
        with torch.no_grad():
            ans = odeint(func, y0, t, method=method)
            ctx.save_for_backward(t, ans, *adjoint_params)
        return ans

    @staticmethod
    def backward(ctx, *grad_y):
        with torch.no_grad():
            func = ctx.func
            t, ans, *adjoint_params = ctx.saved_tensors
            adjoint_params = tuple(adjoint_params)
            grad_y = grad_y[0]
            n = ans[-1].numel()
            sizes = [n, n] + [p.numel() for p in adjoint_params]

            def augmented_dynamics(t, y_aug):
                y = y_aug[:n].view_as(ans[-1])
                adj_y = y_aug[n:2 * n].view_as(ans[-1])
                with torch.enable_grad():
                    y = y.detach().requires_grad_(True)
                    func_eval = func(t, y)
                    vjp_y, *vjp_params = torch.autograd.grad(
                        func_eval, (y,) + adjoint_params, -adj_y,
                        allow_unused=True, retain_graph=True
                    )
                vjp_y = torch.zeros_like(y) if vjp_y is None else vjp_y
                vjp_params = [torch.zeros_like(param) if vjp_param is None else vjp_param
                              for param, vjp_param in zip(adjoint_params, vjp_params)]
                return torch.cat([x.reshape(-1) for x in (func_eval, vjp_y, *vjp_params)])

            aug_state = torch.cat([ans[-1].reshape(-1), grad_y[-1].reshape(-1)] + [torch.zeros(s) for s in sizes[2:]])
            for i in range(len(t) - 1, 0, -1):
                aug_state = odeint(augmented_dynamics, aug_state, t[i - 1:i + 1].flip(0), method=ctx.method)[1]
                pieces = list(aug_state.split(sizes))
                pieces[0] = ans[i - 1].reshape(-1)
                pieces[1] = pieces[1] + grad_y[i - 1].reshape(-1)
                aug_state = torch.cat(pieces)
            pieces = aug_state.split(sizes)
            adj_y = pieces[1].view_as(ans[-1])
            adj_params = [piece.view_as(p) for piece, p in zip(pieces[2:], adjoint_params)]
        return (None, adj_y, None, None, *adj_params)


def odeint_adjoint(func, y0, t, method='dopri5'):
    return OdeintAdjointMethod.apply(func, y0, t, method, *func.parameters())


class ODEFunc(nn.Module):

    def __init__(self):
        super(ODEFunc, self).__init__()

        self.net = nn.Sequential(
            nn.Linear(2, 12),
            nn.Tanh(),
            nn.Linear(12, 2),
        )

        for m in self.net.modules():
            if isinstance(m, nn.Linear):
                nn.init.normal_(m.weight, mean=0, std=0.1)
                nn.init.constant_(m.bias, val=0)

    def forward(self, t, y):
        return self.net(y**3)


class Lambda(nn.Module):
    def forward(self, t, y):
        return torch.mm(y**3, torch.tensor([[-0.1, 2.0], [-2.0, -0.1]], dtype=y.dtype))


def program():
    true_y0 = torch.tensor([[2., 0.]])
    t = torch.linspace(0., 0.5, 6)
    with torch.no_grad():
        true_y = odeint(Lambda(), true_y0.double(), t, method='dopri5').float()
    yield "truth", true_y
    print("evaluations", odeint.evaluations)
    func = ODEFunc()
    yield "initial", func
    optimizer = optim.RMSprop(func.parameters(), lr=1e-3)
    for name, integrate, method in (("rk4", odeint, 'rk4'), ("adjoint", odeint_adjoint, 'rk4'), ("dopri5 adjoint", odeint_adjoint, 'dopri5')):
        optimizer.zero_grad()
        y0 = true_y0.clone().requires_grad_()
        pred_y = integrate(func, y0, t, method=method)
        loss = torch.mean(torch.abs(pred_y - true_y))
        loss.backward()
        yield name, [loss, func, y0.grad]
        optimizer.step()
        print('{} | Total Loss {:.6f}'.format(name, loss.item()))
