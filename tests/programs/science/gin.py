"""Powerful GNNs (github.com/weihua916/powerful-gnns): GIN with block-diagonal sparse adjacency, learned epsilon, sparse graph pooling."""

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim


###MLP with lienar output
class MLP(nn.Module):
    def __init__(self, num_layers, input_dim, hidden_dim, output_dim):
        super(MLP, self).__init__()

        self.linear_or_not = True #default is linear model
        self.num_layers = num_layers

        if num_layers < 1:
            raise ValueError("number of layers should be positive!")
        elif num_layers == 1:
            #Linear model
            self.linear = nn.Linear(input_dim, output_dim)
        else:
            #Multi-layer model
            self.linear_or_not = False
            self.linears = torch.nn.ModuleList()
            self.batch_norms = torch.nn.ModuleList()

            self.linears.append(nn.Linear(input_dim, hidden_dim))
            for layer in range(num_layers - 2):
                self.linears.append(nn.Linear(hidden_dim, hidden_dim))
            self.linears.append(nn.Linear(hidden_dim, output_dim))

            for layer in range(num_layers - 1):
                self.batch_norms.append(nn.BatchNorm1d((hidden_dim)))

    def forward(self, x):
        if self.linear_or_not:
            #If linear model
            return self.linear(x)
        else:
            #If MLP
            h = x
            for layer in range(self.num_layers - 1):
                h = F.relu(self.batch_norms[layer](self.linears[layer](h)))
            return self.linears[self.num_layers - 1](h)


class GraphCNN(nn.Module):
    def __init__(self, num_layers, num_mlp_layers, input_dim, hidden_dim, output_dim, final_dropout, learn_eps, graph_pooling_type, device):
        super(GraphCNN, self).__init__()

        self.final_dropout = final_dropout
        self.device = device
        self.num_layers = num_layers
        self.graph_pooling_type = graph_pooling_type
        self.learn_eps = learn_eps
        self.eps = nn.Parameter(torch.zeros(self.num_layers-1))

        ###List of MLPs
        self.mlps = torch.nn.ModuleList()

        ###List of batchnorms applied to the output of MLP (input of the final prediction linear layer)
        self.batch_norms = torch.nn.ModuleList()

        for layer in range(self.num_layers-1):
            if layer == 0:
                self.mlps.append(MLP(num_mlp_layers, input_dim, hidden_dim, hidden_dim))
            else:
                self.mlps.append(MLP(num_mlp_layers, hidden_dim, hidden_dim, hidden_dim))

            self.batch_norms.append(nn.BatchNorm1d(hidden_dim))

        #Linear function that maps the hidden representation at dofferemt layers into a prediction score
        self.linears_prediction = torch.nn.ModuleList()
        for layer in range(num_layers):
            if layer == 0:
                self.linears_prediction.append(nn.Linear(input_dim, output_dim))
            else:
                self.linears_prediction.append(nn.Linear(hidden_dim, output_dim))

    def __preprocess_neighbors_sumavepool(self, batch_graph):
        ###create block diagonal sparse matrix

        edge_mat_list = []
        start_idx = [0]
        for i, graph in enumerate(batch_graph):
            start_idx.append(start_idx[i] + graph["n"])
            edge_mat_list.append(graph["edge_mat"] + start_idx[i])
        Adj_block_idx = torch.cat(edge_mat_list, 1)
        Adj_block_elem = torch.ones(Adj_block_idx.shape[1])

        #Add self-loops in the adjacency matrix if learn_eps is False, i.e., aggregate center nodes and neighbor nodes altogether.
        if not self.learn_eps:
            num_node = start_idx[-1]
            self_loop_edge = torch.LongTensor([range(num_node), range(num_node)])
            elem = torch.ones(num_node)
            Adj_block_idx = torch.cat([Adj_block_idx, self_loop_edge], 1)
            Adj_block_elem = torch.cat([Adj_block_elem, elem], 0)

        Adj_block = torch.sparse.FloatTensor(Adj_block_idx, Adj_block_elem, torch.Size([start_idx[-1],start_idx[-1]]))

        return Adj_block.to(self.device)

    def __preprocess_graphpool(self, batch_graph):
        ###create sum or average pooling sparse matrix over entire nodes in each graph (num graphs x num nodes)
        start_idx = [0]

        #compute the padded neighbor list
        for i, graph in enumerate(batch_graph):
            start_idx.append(start_idx[i] + graph["n"])

        idx = []
        elem = []
        for i, graph in enumerate(batch_graph):
            ###average pooling
            if self.graph_pooling_type == "average":
                elem.extend([1./graph["n"]]*graph["n"])
            else:
            ###sum pooling
                elem.extend([1]*graph["n"])

            idx.extend([[i, j] for j in range(start_idx[i], start_idx[i+1], 1)])
        elem = torch.FloatTensor(elem)
        idx = torch.LongTensor(idx).transpose(0,1)
        graph_pool = torch.sparse.FloatTensor(idx, elem, torch.Size([len(batch_graph), start_idx[-1]]))

        return graph_pool.to(self.device)

    def next_layer_eps(self, h, layer, Adj_block = None):
        ###pooling neighboring nodes and center nodes separately by epsilon reweighting.
        pooled = torch.spmm(Adj_block, h)

        #Reweights the center node representation when aggregating it with its neighbors
        pooled = pooled + (1 + self.eps[layer])*h
        pooled_rep = self.mlps[layer](pooled)
        h = self.batch_norms[layer](pooled_rep)

        #non-linearity
        h = F.relu(h)
        return h

    def next_layer(self, h, layer, Adj_block = None):
        pooled = torch.spmm(Adj_block, h)
        degree = torch.spmm(Adj_block, torch.ones((Adj_block.shape[0], 1)).to(self.device))
        pooled = pooled/degree
        pooled_rep = self.mlps[layer](pooled)
        h = self.batch_norms[layer](pooled_rep)
        h = F.relu(h)
        return h

    def forward(self, batch_graph):
        X_concat = torch.cat([graph["node_features"] for graph in batch_graph], 0).to(self.device)
        graph_pool = self.__preprocess_graphpool(batch_graph)
        Adj_block = self.__preprocess_neighbors_sumavepool(batch_graph)

        #list of hidden representation at each layer (including input)
        hidden_rep = [X_concat]
        h = X_concat

        for layer in range(self.num_layers-1):
            if self.learn_eps:
                h = self.next_layer_eps(h, layer, Adj_block = Adj_block)
            else:
                h = self.next_layer(h, layer, Adj_block = Adj_block)
            hidden_rep.append(h)

        score_over_layer = 0

        #perform pooling over all nodes in each graph in every layer
        for layer, h in enumerate(hidden_rep):
            pooled_h = torch.spmm(graph_pool, h)
            score_over_layer += F.dropout(self.linears_prediction[layer](pooled_h), self.final_dropout, training = self.training)

        return score_over_layer


def ring(n, chord):
    edges = [[i, (i + 1) % n] for i in range(n)] + ([[0, n // 2]] if chord else [])
    edges += [[j, i] for i, j in edges]
    degree = [sum(1 for a, _ in edges if a == i) for i in range(n)]
    return {"n": n, "edge_mat": torch.LongTensor(edges).transpose(0, 1), "node_features": F.one_hot(torch.LongTensor(degree) - 1, 4).float(), "label": int(chord)}


def program():
    device = torch.device("cuda:0") if torch.cuda.is_available() else torch.device("cpu")
    graphs = [ring(n, chord) for n in (4, 6, 7) for chord in (False, True)]
    labels = torch.LongTensor([graph["label"] for graph in graphs]).to(device)
    criterion = nn.CrossEntropyLoss()
    for learn_eps, pooling in ((True, "sum"), (False, "average")):
        model = GraphCNN(3, 2, 4, 8, 2, 0.5, learn_eps, pooling, device).to(device)
        yield "initial", model
        for name, p in model.named_parameters():  # of a bias before a batch norm rounding alone makes the gradient, and Adam a whole step of it
            p.requires_grad_(not (".linears." in name and name.endswith("bias")))
        optimizer = optim.Adam(model.parameters(), lr=0.01)
        scheduler = optim.lr_scheduler.StepLR(optimizer, step_size=2, gamma=0.5)
        for epoch in range(3):
            model.train()
            output = model(graphs)
            loss = criterion(output, labels)
            optimizer.zero_grad()
            loss.backward()
            if epoch == 0:
                yield "gradients", {n: p.grad for n, p in model.named_parameters() if not n.endswith("0.bias") and not n.endswith("1.bias")}
            optimizer.step()
            scheduler.step()
            print("epoch: %d" % epoch, "loss %.5f" % loss.detach().cpu().numpy(), "lr %g" % scheduler.get_last_lr()[0])
        model.eval()
        pred = model(graphs).max(1, keepdim=True)[1]
        correct = pred.eq(labels.view_as(pred)).sum().cpu().item()
        print("accuracy: %f" % (correct / float(len(graphs))))
